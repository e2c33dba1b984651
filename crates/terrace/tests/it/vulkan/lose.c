// A Vulkan layer that loses the device: while the file $LOSE_DEVICE exists, work that is handed to the device, and
// waiting for it, fails with VK_ERROR_DEVICE_LOST. For one instance and one device.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define NAME "VK_LAYER_TERRACE_lose"

static PFN_vkGetInstanceProcAddr next_instance;
static PFN_vkGetDeviceProcAddr next_device;
static VkInstance instance;
static VkDevice device;

static int lost(void) {
    const char * file = getenv("LOSE_DEVICE");
    return file && access(file, F_OK) == 0;
}

#define NEXT(name) ((PFN_##name) next_device(device, #name))

static VkResult submit(VkQueue queue, uint32_t count, const VkSubmitInfo * infos, VkFence fence) {
    return lost() ? VK_ERROR_DEVICE_LOST : NEXT(vkQueueSubmit)(queue, count, infos, fence);
}

static VkResult wait(VkDevice d, uint32_t count, const VkFence * fences, VkBool32 all, uint64_t timeout) {
    return lost() ? VK_ERROR_DEVICE_LOST : NEXT(vkWaitForFences)(d, count, fences, all, timeout);
}

// The link of the chain of layers in a structure's list of extensions.
static void * link_of(const void * first, VkStructureType type) {
    for (VkLayerInstanceCreateInfo * info = (void *) first; info; info = (void *) info->pNext) {
        if (info->sType == type && info->function == VK_LAYER_LINK_INFO) {
            return info;
        }
    }
    return NULL;
}

static VkResult create_instance(const VkInstanceCreateInfo * info, const VkAllocationCallbacks * a, VkInstance * out) {
    VkLayerInstanceCreateInfo * chain = link_of(info->pNext, VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO);
    next_instance = chain->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    chain->u.pLayerInfo = chain->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance) next_instance(NULL, "vkCreateInstance");
    const VkResult result = create(info, a, out);
    instance = *out;
    return result;
}

static VkResult create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo * info, const VkAllocationCallbacks * a,
        VkDevice * out) {
    VkLayerDeviceCreateInfo * chain = link_of(info->pNext, VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO);
    next_device = chain->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    chain->u.pLayerInfo = chain->u.pLayerInfo->pNext;
    PFN_vkCreateDevice create = (PFN_vkCreateDevice) next_instance(instance, "vkCreateDevice");
    const VkResult result = create(physical, info, a, out);
    device = *out;
    return result;
}

static PFN_vkVoidFunction get_device(VkDevice d, const char * name);

static PFN_vkVoidFunction own(const char * name) {
    static const struct { const char * name; PFN_vkVoidFunction function; } all[] = {
        { "vkCreateInstance", (PFN_vkVoidFunction) create_instance },
        { "vkCreateDevice", (PFN_vkVoidFunction) create_device },
        { "vkGetDeviceProcAddr", (PFN_vkVoidFunction) get_device },
        { "vkQueueSubmit", (PFN_vkVoidFunction) submit },
        { "vkWaitForFences", (PFN_vkVoidFunction) wait },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) == 0) {
            return all[i].function;
        }
    }
    return NULL;
}

static PFN_vkVoidFunction get_device(VkDevice d, const char * name) {
    const PFN_vkVoidFunction mine = own(name);
    return mine ? mine : next_device(d, name);
}

static PFN_vkVoidFunction get_instance(VkInstance i, const char * name) {
    const PFN_vkVoidFunction mine = own(name);
    return mine ? mine : next_instance(i, name);
}

VkResult vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface * version) {
    version->loaderLayerInterfaceVersion = 2;
    version->pfnGetInstanceProcAddr = get_instance;
    version->pfnGetDeviceProcAddr = get_device;
    version->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
